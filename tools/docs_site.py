"""The hook of MkDocs that makes a site of the documents (``make docs``, ``mkdocs.yml``).

The pages are also read as files of the repository, so they link to its other files by relative paths. In the site the
files outside of ``docs`` are pages below ``repository/``: this hook adds those that a page links to, and rewrites the
links. It also writes the tables of all settings from their declarations.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BESIDE = "repository"  # the place of the files outside of docs
COPIED = {".svg", ".png", ".json"}  # other files become pages
LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".toml": "toml"}

CODE_OR_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|\]\(([^)\s]+)\)", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r":(?:class|meth|func|mod|attr|data):<code>[~.]*")
SETTINGS_HERE = "<!-- settings -->"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the files outside of ``docs`` that a page links to, and those that they link to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for target, _ in links(folder_of(page), text_of(page)):
            if target.is_relative_to(DOCS) or not target.exists() or files.get_file_from_path(in_site(target)):
                continue
            if target.suffix in COPIED:
                files.append(File.generated(config, in_site(target), abs_src_path=str(target)))
            else:
                files.append(File.generated(config, in_site(target), content=relinked(text_of(target), target)))
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page of ``docs`` with its links as they are in the site, and with the tables of settings in their place."""
    if page.file.generated_by:
        return markdown
    if SETTINGS_HERE in markdown:
        markdown = markdown.replace(SETTINGS_HERE, settings_tables())
    return relinked(markdown, DOCS / page.file.src_uri)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A docstring's ``:class:`Graph``` is shown as code."""
    return ROLE.sub("<code>", html)


def links(folder: Path, markdown: str) -> Iterator[tuple[Path, str]]:
    """The file and the anchor of every relative link of a text that lies in ``folder``."""
    for match in CODE_OR_LINK.finditer(markdown):
        if match[1] and not re.match(r"[a-z]+:|#", match[1]):
            path, _, anchor = match[1].partition("#")
            yield Path(os.path.normpath(folder / path)), anchor


def in_site(path: Path) -> str:
    """The place of a file of the repository in the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if path.is_dir():
        path /= "README.md"
    suffix = "" if path.suffix in {".md", *COPIED} else ".md"
    return f"{BESIDE}/{path.relative_to(ROOT).as_posix()}{suffix}"


def relinked(markdown: str, file: Path) -> str:
    """The text of a file, whose relative links lead to the places in the site."""
    here = Path(in_site(file)).parent

    def moved(match: re.Match[str]) -> str:
        found = next(links(folder_of(file), match[0]), None)
        if found is None or not found[0].exists():
            return match[0]
        place = os.path.relpath(in_site(found[0]), here)
        return f"]({place}#{found[1]})" if found[1] else f"]({place})"

    return CODE_OR_LINK.sub(moved, markdown)


def folder_of(file: Path) -> Path:
    """The folder that a file's relative links start from."""
    return file if file.is_dir() else file.parent


def text_of(file: Path) -> str:
    """A file as Markdown: a folder is a list of its files, a notebook its cells, and any other text a block of code."""
    if file.is_dir():
        inside = sorted(
            path.relative_to(file) for path in file.rglob("*") if path.is_file() and "__pycache__" not in path.parts
        )
        return f"# {file.name}\n\n" + "".join(f"- [{path}]({path})\n" for path in inside)
    text = file.read_text()
    if file.suffix == ".md":
        return without_diagrams(text)
    if file.suffix == ".ipynb":
        return "\n\n".join(cell_text(cell) for cell in json.loads(text)["cells"])
    return f"# {file.relative_to(ROOT)}\n\n```{LANGUAGES.get(file.suffix, '')}\n{text}\n```\n"


def cell_text(cell: dict[str, Any]) -> str:
    """A cell of a notebook with the texts that it printed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell["outputs"]]
    blocks = [f"```python\n{source}\n```", *(f"```text\n{''.join(text).rstrip()}\n```" for text in printed if text)]
    return "\n\n".join(blocks)


def without_diagrams(markdown: str) -> str:
    """A text whose flowcharts are tables: the program that draws them would be fetched from another host."""
    return re.sub(
        r"^```mermaid\n(.*?)^```", lambda match: flowchart_table(match[1]), markdown, flags=re.DOTALL | re.MULTILINE
    )


def flowchart_table(flowchart: str) -> str:
    """A row for every box of a flowchart: its text, and the boxes to which arrows lead."""
    texts = dict(re.findall(r'(\w+)\["(.*?)"\]', flowchart))
    leads: dict[str, list[str]] = {name: [] for name in texts}
    for line in re.sub(r'\[".*?"\]|\|".*?"\|', "", flowchart).splitlines()[1:]:
        parts = re.split(r"(<?-->)", line)
        for left, arrow, right in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
            ends = [(a.strip(), b.strip()) for a in left.split("&") for b in right.split("&")]
            for source, target in ends + ([end[::-1] for end in ends] if arrow == "<-->" else []):
                leads[source].append(texts[target].partition("<br/>")[0])
    rows = [(*text.partition("<br/>")[::2], ", ".join(leads[name])) for name, text in texts.items()]
    lines = [f"| {name} | {text.replace('<br/>', ' ')} | {targets} |" for name, text, targets in rows]
    return "\n".join(["| folder | what it does | leads to |", "|---|---|---|", *lines])


def settings_tables() -> str:
    """A table of the settings of every group, from their declarations."""
    from dorylus.config import RunConfig
    from dorylus.settings import SettingGroup

    of_group = {
        group: [each for each in fields(RunConfig) if each.metadata["group"] == group] for group in SettingGroup
    }
    return "\n".join(f"## {group}\n\n{settings_table(settings)}" for group, settings in of_group.items() if settings)


def settings_table(settings: list[Field[Any]]) -> str:
    """A row for every setting: keyword and flag, default, and what it means."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for each in settings:
        default = {} if each.default is MISSING else each.default
        meaning = [each.metadata["help"]]
        unnamed = not all(choice in each.metadata["help"] for choice in each.metadata["choices"])
        meaning += (
            ["Values: " + ", ".join(f"`{choice}`" for choice in each.metadata["choices"]) + "."] if unnamed else []
        )
        meaning += ["*May change on resume.*"] if each.metadata["recut"] else []
        default_text = "" if default in (None, {}, ()) else f"`{default}`"
        cells = [f"`{each.name}`<br>`--{each.name.replace('_', '-')}`", default_text, " ".join(meaning)]
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
