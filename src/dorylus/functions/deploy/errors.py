"""What goes wrong between a wish for a function and the function."""

from dorylus.errors import DorylusError


class DeployError(DorylusError):
    """A function that could not be packed, deployed, looked at or destroyed."""

    exit_code = 1
