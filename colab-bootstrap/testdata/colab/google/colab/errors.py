class Error(Exception):
    """Base class of the errors of Colab's package."""
