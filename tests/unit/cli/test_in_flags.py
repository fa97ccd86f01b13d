import pytest

from dorylus.cli.error_flags import in_flags, with_flags
from dorylus.errors import ConfigError


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("num_vertices=1,913, but", "--num-vertices 1,913, but"),
        ("Give num_vertices=4.", "Give --num-vertices 4."),
        ("leave columns= away", "leave --columns away"),
        ("as in columns=(0, 1) or", "as in --columns 0,1 or"),
        ("columns=['a', 'b', 3]: no", "--columns a,b,3: no"),
        ("delimiter=',': no", "--delimiter ,: no"),
        ("by ids='map' (--ids map).", "by --ids map."),
        ("by vertices= (--vertices): a", "by --vertices: a"),
        ("pass format= (text, npy).", "pass --format (text, npy)."),
        ("with header=True (dorylus ingest --header).", "with --header."),
        ("with ids='map' (dorylus ingest --ids map).", "with --ids map."),
        ("with columns=(0, 1) (dorylus ingest --columns 0,1).", "with --columns 0,1."),
        ("pass undirected=False (--directed) if", "pass --directed if"),
        ("in data/ids=map/x and format=csv/y", "in data/ids=map/x and format=csv/y"),
        ("no word of it", "no word of it"),
    ],
)
def test_settings_become_flags_and_paths_stay(sentence, told):
    assert with_flags(sentence) == told


def test_an_error_keeps_its_kind():
    with pytest.raises(ConfigError, match=r"^--ids map$"), in_flags():
        raise ConfigError("ids='map'")
