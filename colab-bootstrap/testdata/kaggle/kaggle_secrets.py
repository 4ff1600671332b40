"""Stand-in for Kaggle's module: the class, method and errors that the cell uses. The real
module asks Kaggle's server; this one reads PAGE_SECRETS."""

import json
import os


class CredentialError(Exception):
    pass


class BackendError(Exception):
    pass


class UserSecretsClient:
    def __init__(self):
        if "KAGGLE_USER_SECRETS_TOKEN" not in os.environ:
            raise CredentialError("A JWT Token is required to use the UserSecretsClient")

    def get_secret(self, label) -> str:
        if "PAGE_SECRETS" not in os.environ:
            raise ConnectionError("Connection error trying to communicate with service.")
        secrets = json.loads(os.environ["PAGE_SECRETS"])
        if label not in secrets:
            raise BackendError("Unexpected response from the service.")
        return secrets[label]["payload"]
