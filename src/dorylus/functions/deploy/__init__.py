"""Deployment of the function: what its zip holds, which calls set it up, and a stand-in for AWS on this machine."""
