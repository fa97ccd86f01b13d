"""Services that run functions: processes of this machine, HTTP, AWS Lambda and its stand-in."""
