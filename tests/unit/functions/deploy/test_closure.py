import sys

from dorylus.functions.deploy.package import ENTRY, imports_of, modules_of, packages_of


def test_the_function_needs_its_handler_and_the_wire_but_neither_torch_nor_the_rest_of_dorylus():
    modules = set(modules_of())
    assert {"dorylus", "dorylus.errors", ENTRY, "dorylus.functions.handler", "dorylus.wire.frames"} <= modules
    assert {name.split(".")[1] for name in modules if "." in name} == {"errors", "functions", "lazy", "wire"}
    assert not any("deploy" in name or "export" in name for name in modules)


def test_what_is_imported_inside_a_function_is_needed_too():
    assert "dorylus.wire.client" in modules_of()  # used on the direct path only
    assert "zmq" in packages_of()


def test_nothing_else_has_to_be_installed_than_is_packed():
    assert packages_of() - set(sys.stdlib_module_names) == {"numpy", "onnxruntime", "zmq"}


def test_every_module_comes_with_its_packages_and_its_file():
    modules = modules_of()
    for name, path in modules.items():
        assert path.is_file()
        assert name == "dorylus" or name.rpartition(".")[0] in modules


def test_what_only_a_type_checker_imports_is_not_needed():
    assert not [name for name in imports_of("dorylus") if name.startswith("dorylus.saga")]
