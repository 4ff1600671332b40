class Error(Exception):
    """What the errors of Colab's package have in common."""
