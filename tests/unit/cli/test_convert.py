from dorylus.graph.graph import Graph


def test_a_graph_becomes_a_store_that_opens(dorylus_program, tmp_path):
    code, out, _ = dorylus_program("convert", "ring:num_vertices=12", "stored")
    assert (code, out) == (0, "12 vertices and 24 directed edges of ring in stored\n")
    assert Graph.open(tmp_path / "stored").num_edges == 24


def test_a_store_is_replaced_only_with_overwrite(dorylus_program, tmp_path):
    dorylus_program("convert", "ring:num_vertices=12", "stored")
    code, _, err = dorylus_program("convert", "ring:num_vertices=5", "stored")
    assert code == 2
    assert "give --overwrite" in err
    assert Graph.open(tmp_path / "stored").num_vertices == 12
    assert dorylus_program("convert", "ring:num_vertices=5", "stored", "--overwrite")[0] == 0
    assert Graph.open(tmp_path / "stored").num_vertices == 5


def test_features_may_be_normalised_on_conversion(dorylus_program, tmp_path):
    dorylus_program("convert", "communities:num_vertices=500,seed=1", "plain")
    dorylus_program("convert", "communities:num_vertices=500,seed=1", "normalised", "--row-normalise")
    plain, normalised = Graph.open(tmp_path / "plain"), Graph.open(tmp_path / "normalised")
    assert (plain.row_normalised().features == normalised.features).all()
    assert not (plain.features == normalised.features).all()


def test_features_may_be_stored_in_two_bytes(dorylus_program, tmp_path):
    dorylus_program("convert", "communities:num_vertices=500,seed=1", "plain")
    assert dorylus_program("convert", "plain", "half", "--feature-dtype", "float16")[0] == 0
    plain, half = Graph.open(tmp_path / "plain"), Graph.open(tmp_path / "half", verify=True)
    assert half.feature_dtype == "float16"
    assert (half.features == plain.features.astype("float16")).all()


def test_a_folder_that_is_no_store_is_left_alone(dorylus_program, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    code, _, err = dorylus_program("convert", "ring:num_vertices=5", "notes", "--overwrite")
    assert code == 2
    assert "not a store" in err
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["a.txt"]
