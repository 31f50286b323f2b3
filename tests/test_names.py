"""Names that become folders cannot lead outside of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.names import check_folder_name, check_name
from semilearn_ext.settings import settings_from

BAD = ["/../../x", "..", ".hidden", "a/b", "a\\b", "a b", "a\nb", "\x1b[31m", "x" * 101, "-x", "a\0b", "a:b", "$(x)"]


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_folder_name_is_refused(name: str) -> None:
    for setting in ("variant", "dataset"):
        with pytest.raises(UserError) as error:
            settings_from(**{setting: name})
        assert str(error.value).startswith(f"python: {setting}: ")
        assert "\n" not in str(error.value)


def test_names_of_domains_can_contain_spaces_but_not_paths() -> None:
    assert check_folder_name("Real World (2)", "data") == "Real World (2)"
    for name in ("", " ", "..", ".git", "a/b", "a\nb", "x" * 101):
        with pytest.raises(UserError, match="name"):
            check_folder_name(name, "data")
    with pytest.raises(UserError, match="is not a valid folder name"):
        settings_from(target_domain="../../x")


def test_ordinary_names_are_accepted(tmp_path: Path) -> None:
    for name in ("fixmatch_upcsc", "top1_proxy", "v1.2", "lr-0.03", "größer"):
        assert check_name(name, "test") == name
