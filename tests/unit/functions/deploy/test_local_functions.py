import pytest

from dorylus.errors import ConfigError
from dorylus.functions.deploy import local


def test_without_ministack_the_message_names_what_to_install(monkeypatch):
    monkeypatch.setattr("dorylus.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'ministack.*pip install "dorylus\[local-functions\]"'):
        local.LocalFunctions()
