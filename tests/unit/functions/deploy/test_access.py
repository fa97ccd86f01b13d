import pytest

from dorylus.errors import ConfigError
from dorylus.functions.deploy.access import AwsAccess, aws_access, local_access


@pytest.mark.parametrize("url", ["https://lambda.eu-central-1.amazonaws.com", "http://10.0.0.1:4566", "http://evil/"])
def test_a_stand_in_must_be_on_this_machine(url):
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
        local_access(url)


def test_a_stand_in_is_never_given_real_credentials_nor_a_proxy(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREALREALREALREAL")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "real")
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    client = local_access("http://127.0.0.1:1").client("lambda")
    credentials = client._request_signer._credentials
    assert (credentials.access_key, credentials.secret_key) == ("local", "local")
    assert client.meta.endpoint_url == "http://127.0.0.1:1"
    assert client.meta.config.proxies == {}


def test_the_region_is_the_one_named_or_the_one_boto3_is_set_up_for(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n[profile other]\nregion = eu-north-1\n")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert aws_access("us-west-2").region == "us-west-2"
    assert aws_access().region == "eu-west-3"
    assert aws_access(profile="other").region == "eu-north-1"
    with pytest.raises(ConfigError, match="nobody"):
        aws_access(profile="nobody")


def test_without_any_region_the_message_explains_how_to_name_one(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"AWS_DEFAULT_REGION=.*~/.aws/config; dorylus functions takes --region"):
        aws_access()


def test_a_region_that_is_misspelt_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown AWS region 'eu-centrl-1'.*Did you mean 'eu-central-1'\?.*newer"):
        aws_access("eu-centrl-1")


@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1", "us-gov-west-1"])
def test_regions_of_every_partition_are_known(region):
    assert aws_access(region).region == region


def test_aws_is_what_has_no_endpoint_of_its_own():
    assert not AwsAccess("eu-central-1").is_local
    assert local_access().endpoint_url == "http://127.0.0.1:4566"
