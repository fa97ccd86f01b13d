"""Runs that are disturbed on purpose: processes killed or stopped, cables cut, files truncated, disks filled."""
