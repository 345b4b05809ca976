# SPDX-License-Identifier: Apache-2.0
"""Models that are archives: unpacked as KServe's storage initializer does it, hostile ones refused.

ctest: timeout=300
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import unittest
import zipfile

import shoal_fixture
from shoal_ctl import NEGATIVE
from test_71_storage import Case

MINE = {"storage_key": "mine"}


def tar(*entries, mode="w:gz", form=tarfile.PAX_FORMAT):
    """Of (name, content), content being bytes or members of TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
            else:
                for member, value in content.items():
                    setattr(info, member, value)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def zipped(*entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()


def folder(name):
    return name, {"type": tarfile.DIRTYPE}


def link(name, target, kind=tarfile.SYMTYPE):
    return name, {"type": kind, "linkname": target}


def size_of(file):
    """0: it has just been moved."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


class TestArchives(Case):
    def files(self):
        return [("model.json", self.data), ("größe/日本 b", b"w" * 1000)]

    def test_every_kind_from_everywhere(self):
        """Equal contents are there once, from any archive, and an archive leaves no trace."""
        usual = [folder("./"), folder("./größe/")] + [("./" + name, data) for name, data in self.files()]
        archives = {"pax.tar.gz": tar(*usual), "gnu.tgz": tar(*usual, form=tarfile.GNU_FORMAT),
                    "plain.TAR": tar(*usual, mode="w"), "z.zip": zipped(*self.files())}
        for name, archive in archives.items():
            with self.subTest(name):
                self.store.objects["models"]["at/" + name] = archive
                self.load(name, "at/" + name, MINE)
                self.store.plain["/plain/" + name] = archive
                self.load("web-" + name, f"{self.store.url}/plain/{name}?sig=querysecret")
                self.ask(name)
        self.store.objects["models"]["alone/deep/one.tgz"] = archives["gnu.tgz"]
        self.load("alone", "alone", MINE)
        (self.folder / "files" / "one.zip").write_bytes(archives["z.zip"])
        self.load("local", (self.folder / "files" / "one.zip").as_uri())
        self.ask("local")
        self.assertEqual(self.cached(), [dict(self.files())])
        self.assertEqual(list((self.cache / "partial").iterdir()), [])

    def test_unchanged_and_digest(self):
        archive = zipped(*self.files())
        digests = {"m.zip": hashlib.sha256(archive).hexdigest(), "model.json": hashlib.sha256(self.data).hexdigest()}
        key = {**MINE, "sha256": digests}
        self.store.objects["models"]["m.zip"] = self.store.plain["/plain/m.zip"] = archive
        for _ in range(2):
            self.load("m", "m.zip", key)
            self.load("web", self.store.url + "/plain/m.zip")
            self.unload("m")
            self.unload("web")
        self.assertEqual((self.count("storage_hits"), self.count("storage_received")), (2, 2 * len(archive)))
        for expected, stated in (("m.zip: its sha256 is", {"m.zip": "0" * 64}), ("is an archive", "0" * 64),
                                 ("model.json: its sha256 is", {**digests, "model.json": "0" * 64}),
                                 ("which is not there", {**digests, "more": "0" * 64})):
            self.assertIn(expected, self.load("m", "m.zip", {**MINE, "sha256": stated}, code=NEGATIVE))

        # among others it is a file; digests beside files count
        self.put(**{"more.zip": zipped(("a", b"1"))})
        self.load("folder", "m", MINE)
        self.assertIn({"model.json", "more.zip"}, [set(model) for model in self.cached()])
        wrong = hashlib.sha256(b"other").hexdigest().encode()
        self.store.objects["models"]["m.zip"] = zipped(*self.files(), ("model.json.sha256", wrong))
        self.assertIn("model.json.sha256 says", self.load("m", "m.zip", MINE, code=NEGATIVE))

    def test_links_inside(self):
        self.store.objects["models"]["m.tgz"] = tar(
            link("model.json", "sub/../sub/real"), link("up/again", "../model.json"), ("sub/real", self.data))
        self.load("m", "m.tgz", MINE)
        self.ask("m")
        model, = (self.cache / "models").iterdir()
        self.assertEqual(os.readlink(model / "up" / "again"), "../model.json")

    def begin_and_kill(self, path, key):
        """Whether the node was killed while it unpacked, not after."""
        asker = subprocess.Popen(
            [shoal_fixture.BIN / "shoalctl", "model", "load", "--counters", self.shoald.counters,
             "m", path, "--key", json.dumps(key)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while asker.poll() is None:
            if any(size_of(file) > 0 for file in self.cache.glob("partial/*/unpacked/weights")):
                break
        self.shoald.kill()
        asker.wait()
        return any(self.cache.glob("partial/*/unpacked/weights"))

    def begin_anew(self):
        shutil.rmtree(self.cache)
        self.store.sent = 0
        self.begin()

    def test_kill_in_the_middle(self):
        """Fetched bytes are not fetched again, but for one over HTTP, and unpacked files stay hidden."""
        entries = [*self.files(), ("weights", os.urandom(16 << 20))]
        archive = tar(*entries, mode="w")
        self.store.objects["models"]["m.tar"] = self.store.plain["/plain/m.tar"] = archive
        for path, key, again in (("m.tar", MINE, 0), (self.store.url + "/plain/m.tar", {}, 1)):
            while not self.begin_and_kill(path, key):
                self.begin_anew()
            self.assertEqual(self.cached(), [])
            self.assertEqual(self.store.sent, len(archive))
            self.begin()
            self.load("m", path, key)
            self.ask("m")
            self.assertTrue(self.cached() == [dict(entries)], "another content")
            self.assertEqual((self.store.sent, list(self.cache.glob("partial/*"))), (len(archive) + again, []))
            self.shoald.kill()
            self.begin_anew()

    def test_serve(self):
        """It has the archive's name, and code in it is no model."""
        for name, content, code, told in (
                ("boat.tgz", ("model.json", self.data), 0, 'id: "boat"'),
                ("evil.tgz", ("model.py", b"import shoal"), 2, "no model of a known format")):
            self.store.plain["/plain/" + name] = tar(content, ("key.json", b"{}"))
            done = subprocess.run(
                [shoal_fixture.BIN / "shoald", "serve", "--print-config", self.store.url + "/plain/" + name],
                env={**os.environ, "XDG_CACHE_HOME": str(self.folder)}, capture_output=True, text=True,
                check=False, timeout=60)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(told, done.stdout + done.stderr)


class TestHostileArchives(Case):
    def refused(self, expected, archive, name="m.tar.gz"):
        with self.subTest(expected):
            self.store.objects["models"][name] = archive
            self.assertIn(expected, self.load("m", name, MINE, code=NEGATIVE))
            self.assertEqual(self.cached(), [])
            self.assertEqual([path for path in self.folder.rglob("*") if "evil" in path.name], [])

    def test_names_links_and_devices(self):
        for name in ("/tmp/evil", "../evil", "a/../../evil", "./../evil", "a/./evil", "evil\n",
                     "evil/" + "n" * 256, "/".join(["evil"] * 1000), ""):
            self.refused("cannot be the name of a file", tar((name, b"x")))
        self.refused("cannot be the name of a file", zipped(("../evil", b"x")), "m.zip")
        self.refused("cannot be the name of a file", tar(folder("../evil")))
        self.refused("comes twice", tar(("a", b"1"), ("a", b"2")))
        self.refused("would have the name of a folder", tar(("a", b"1"), ("a/evil", b"2")))

        outside = str(self.folder)
        ends = "is a link that ends at nothing in the archive"
        for target in ("/etc/passwd", "../../../../../../etc/passwd", "nothing", "evil-link", "a/../.."):
            self.refused(ends, tar(("a/b", b"x"), link("evil-link", target)))
        self.refused("is a link to a longer name", tar(("a", b"x"), link("evil-link", "n/" * 600)))
        self.refused(ends, tar(("d1/d2/f", b"x"), link("d1/d2/up", "../.."), link("evil", "d1/d2/up/..")))
        # through a link: in any order of the entries
        through = [link("a", outside), ("a/evil", b"x")]
        self.refused("comes twice", tar(*through))
        self.refused("comes twice", tar(*reversed(through)))
        self.refused("comes twice", tar(link("a", outside), link("a/evil", "x")))
        self.refused("is a hard link", tar(("a", b"x"), link("evil", "a", tarfile.LNKTYPE)))
        info = zipfile.ZipInfo("evil")
        info.external_attr, info.create_system = 0o120777 << 16, 3
        self.refused(ends, zipped((info, "/etc/passwd")), "m.zip")

        for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE):
            self.refused("is no file, no folder and no link", tar(("evil", {"type": kind})))

    def test_bombs_and_broken(self):
        zeros = bytes(20 << 20)
        for name, archive in (("m.tar.gz", tar(("evil", zeros))), ("m.zip", zipped(("evil", zeros)))):
            self.refused("more than 200 times its size", archive, name)
        self.refused("more than 200 times its size", tar(*[(f"{i}/" + "evil/" * 180 + "f", b"") for i in range(25)]))
        self.refused("more than 65536 files", tar(folder("evil"), mode="w")[:512] * 65537)
        self.assertLess(self.count("storage_cache"), 2 << 20)
        good = tar(("evil", os.urandom(1 << 20)))
        for archive in (good[:len(good) // 2], b"no archive", b""):
            self.refused("it cannot be unpacked", archive)
        wrong = bytearray(zipped(("evil", b"x" * 1000)))
        wrong[14] ^= 1  # the checksum
        wrong[wrong.rindex(b"PK\1\2") + 16] ^= 1
        self.refused("it cannot be unpacked", bytes(wrong), "m.zip")
        self.refused("there is no file in it", tar(folder("a")))

    def test_checksums_of_gzip(self):
        """They follow the archive's end, which is as far as a reader of tar reads."""
        for plain in (tar(("evil", b"x" * 1000), mode="w"), tar(("evil", os.urandom(1 << 20)), mode="w")):
            good = gzip.compress(plain)
            for place, said in ((-8, "incorrect data check"), (-1, "incorrect length check")):
                wrong = bytearray(good)
                wrong[place] ^= 1
                self.refused(f"it cannot be unpacked: {said}", bytes(wrong))
            for cut in (1, 7, 8, 9):
                self.refused("it cannot be unpacked: unexpected end of file", good[:-cut])
        self.refused("over 16 MiB follow its end", gzip.compress(tar(("evil", b"x"), mode="w") + bytes(17 << 20)))
        self.store.objects["models"]["m.tgz"] = gzip.compress(tar(*TestArchives.files(self), mode="w")) + bytes(512)
        self.load("m", "m.tgz", MINE)


class TestSmallCache(Case):
    cache_gib = 10 / 1024

    def test_both_count(self):
        """While it is unpacked, the archive and what it has; then what it has."""
        random = os.urandom(6 << 20)
        self.store.objects["models"]["big.tar"] = tar(("model.json", self.data), ("w", random), mode="w")
        self.assertIn("raise models_cache_gib", self.load("m", "big.tar", MINE, code=NEGATIVE))
        self.store.objects["models"]["m.tar"] = tar(("model.json", self.data), ("w", random[:3 << 20]), mode="w")
        self.load("m", "m.tar", MINE)
        self.ask("m")
        self.assertEqual(self.count("storage_cache"), (3 << 20) + len(self.data))


del Case  # its tests are there

if __name__ == "__main__":
    shoal_fixture.main()
