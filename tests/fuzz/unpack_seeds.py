# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/unpack: archives of each kind, and what hostile ones have.

    python3 tests/fuzz/unpack_seeds.py
"""

import io
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def tar(*entries, mode="w", form=tarfile.USTAR_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as archive:
        for name, kind, content in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
            else:
                info.linkname = content.decode()
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(*entries, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name) if isinstance(name, str) else name, content, method)
    return out.getvalue()


LINK = zipfile.ZipInfo("link")
LINK.create_system, LINK.external_attr = 3, 0o120777 << 16
USUAL = [("./", tarfile.DIRTYPE, b""), ("./a/model.json", tarfile.REGTYPE, b"{}"),
         ("./link", tarfile.SYMTYPE, b"a/model.json")]

SEEDS = {
    "usual.tar": tar(*USUAL),
    "usual.tgz": tar(*USUAL, mode="w:gz"),
    "pax.tar": tar(("gr\u00f6\u00dfe/" + "n" * 200, tarfile.REGTYPE, b"x"), form=tarfile.PAX_FORMAT),
    "gnu.tar": tar(("n" * 200, tarfile.REGTYPE, b"x"), form=tarfile.GNU_FORMAT),
    "usual.zip": zipped(("a/model.json", "{}" * 20), ("gr\u00f6\u00dfe", "x")),
    "stored.zip": zipped(("a", "x"), (LINK, "a"), method=zipfile.ZIP_STORED),
    "out.tar": tar(("../out", tarfile.REGTYPE, b"x")),
    "through.tar": tar(("a", tarfile.SYMTYPE, b"../../../.."), ("a/out", tarfile.REGTYPE, b"x")),
    "device.tar": tar(("a", tarfile.CHRTYPE, b"")),
    "hard.tar": tar(("a", tarfile.REGTYPE, b"x"), ("b", tarfile.LNKTYPE, b"a")),
}

if __name__ == "__main__":
    folder = HERE / "corpus" / "unpack"
    folder.mkdir(exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)
