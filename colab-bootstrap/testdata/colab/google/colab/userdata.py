"""The notebook's Secrets. Names, arguments, error texts and waiting are those of the real module."""

import os

from google.colab import _message, errors

# 10 s in the real module; tests may set a shorter time.
_TIMEOUT = float(os.environ.get("PAGE_TIMEOUT", "10"))


class NotebookAccessError(Exception):
    def __init__(self, key):
        super().__init__(f"Notebook does not have access to secret {key}")


class SecretNotFoundError(errors.Error):
    def __init__(self, key):
        super().__init__(f"Secret {key} does not exist.")


class TimeoutException(errors.Error):
    def __init__(self, key):
        super().__init__(
            f"Requesting secret {key} timed out. Secrets can only be fetched when running from the Colab UI."
        )


def get(key):
    answer = _message.blocking_request("GetSecret", request={"key": key}, timeout_sec=_TIMEOUT)
    if answer is None:
        raise TimeoutException(key)
    if not answer.get("exists", False):
        raise SecretNotFoundError(key)
    if not answer.get("access", False):
        raise NotebookAccessError(key)
    return answer.get("payload", "")
