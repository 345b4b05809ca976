# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, driven by Selenium, that keeps what it asked for and what it complained about."""

import base64
import json
import os
import pathlib
import shutil
import tempfile
import unittest
import urllib.parse

from shoal_fixture import wait_until

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

PROGRAMS = shutil.which("chromium"), shutil.which("chromedriver")
BROWSER = unittest.skipUnless(
    all(PROGRAMS) and webdriver,
    "chromium, chromium-driver or python3-selenium is not installed")
OPTIONS = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
           "--no-first-run", "--disable-background-networking", "--disable-component-update"]


class Browser:
    def __init__(self, width=1280, height=900):
        self.size = width, height

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="shoal-browser.")
        options = webdriver.ChromeOptions()
        options.binary_location = PROGRAMS[0]
        for option in OPTIONS + [f"--user-data-dir={self.folder}"]:
            options.add_argument(option)
        if os.geteuid() == 0:  # Chromium has no sandbox for root
            options.add_argument("--no-sandbox")
        options.set_capability("acceptInsecureCerts", True)  # of the tests' own authority
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(PROGRAMS[1]), options=options)
        self.resize(*self.size)
        return self

    def __exit__(self, *_):
        self.driver.quit()
        shutil.rmtree(self.folder, ignore_errors=True)

    def renew(self):
        """For another test: without a page, and all that the one before has left."""
        self.open("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.resize(*self.size)
        self.complaints()
        self.asked()

    def resize(self, width, height, scale=1):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600})

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": name}]})

    def open(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, selector, count=1):
        wait_until(lambda: len(self.all(selector)) >= count,
                   lambda: f"{count} of {selector} in\n{self.text()}")
        return self.all(selector)[0]

    def text(self):
        return self.run("return document.body.innerText")

    def wait_text(self, text):
        wait_until(lambda: text in self.text(), lambda: f"\"{text}\" in\n{self.text()}")

    def press(self, *keys):
        """At the element that has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(getattr(Keys, key.upper(), key))

    def focused(self):
        return self.run("return document.activeElement.textContent.trim()")

    def complaints(self):
        """The console messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked(self):
        """The places, as scheme and host, of all requests since the last call, except those of the
        browser's own pages."""
        events = [json.loads(entry["message"])["message"]
                  for entry in self.driver.get_log("performance")]
        urls = [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]
        return {"://".join(urllib.parse.urlsplit(url)[:2]) for url in urls
                if not url.startswith(("chrome:", "chrome-untrusted:", "data:"))}

    def picture(self, file):
        image = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        pathlib.Path(file).write_bytes(base64.b64decode(image["data"]))
