#!/usr/bin/env python3
"""Tries the page of `quire serve` in a headless Chromium: typing, streaming, stop, reload, a narrow screen, no console error.

usage: page.py QUIRE MODEL [PICTURE.png]

needs: pip install playwright; Chromium of the distribution. The last line is the verdict, and the exit status says it, too."""
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request

from playwright.sync_api import expect, sync_playwright

QUESTION = "What is a block table?"


def start_server(quire, model):
    server = subprocess.Popen([quire, "serve", "--model", model, "--device", "cpu", "--port", "0", "--temperature", "0",
                               "--max-num-seqs", "1"],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"http://[0-9.]+:[0-9]+", line)
        if found:
            return server, found.group()
    raise SystemExit("quire serve has ended: " + str(server.wait()))


def get(url):
    with urllib.request.urlopen(url) as response:
        return json.load(response)


def complete(url):
    body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True}
    with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
        response.read()


def ask(page, question):
    page.get_by_label("Message").fill(question)
    page.get_by_label("Message").press("Enter")


def wait_for_end(page):
    expect(page.locator("#send")).to_be_visible(timeout=60000)


def check_streaming(page):
    """The answer grows while it comes, and says how fast it was."""
    ask(page, QUESTION)
    expect(page.locator(".user")).to_have_text(QUESTION)
    expect(page.locator(".assistant")).not_to_be_empty()
    wait_for_end(page)
    expect(page.locator(".assistant .facts")).to_contain_text("tokens/s")
    expect(page.locator(".error")).to_have_count(0)


def check_stop(page):
    """A request that waits behind a long one is given up, and the next one is answered."""
    long = threading.Thread(target=complete, args=[page.url + "v1/completions"])
    long.start()
    while get(page.url + "stats")["running"] == 0:
        pass
    ask(page, "And then?")
    page.locator("#stop").click()
    wait_for_end(page)
    expect(page.locator(".assistant .facts").last).to_have_text("stopped")
    long.join()
    ask(page, "What is a block?")
    wait_for_end(page)
    expect(page.locator(".assistant .facts").last).to_contain_text("tokens/s")


def check_reload(page):
    """Turns and settings are those from before."""
    page.get_by_label("temperature").fill("0.5")
    before = page.locator(".turn").all_inner_texts()
    page.reload()
    assert page.locator(".turn").all_inner_texts() == before
    expect(page.get_by_label("temperature")).to_have_value("0.5")


def check_narrow(page):
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "the page is wider than the screen"
    expect(page.get_by_label("temperature")).to_be_hidden()
    page.locator("#fold").click()
    expect(page.get_by_label("temperature")).to_be_visible()
    page.locator("#fold").click()
    page.set_viewport_size({"width": 1100, "height": 680})


def check_picture(page):
    """The blocks of the server are drawn, and their numbers shown."""
    expect(page.locator("#free")).not_to_have_text("-")
    assert page.evaluate("""() => {
        const c = document.querySelector('#blocks');
        return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v !== 0);
    }"""), "nothing is drawn"


def main():
    server, url = start_server(sys.argv[1], sys.argv[2])
    said = []
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 680})
            page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda e: said.append(str(e)))
            page.on("request", lambda r: said.append("asks for " + r.url) if not r.url.startswith((url, "data:")) else None)
            page.goto(url)
            for check in (check_picture, check_streaming, check_stop, check_reload, check_narrow):
                check(page)
                print("passed:", check.__name__)
            if len(sys.argv) > 3:
                page.screenshot(path=sys.argv[3])
            browser.close()
    finally:
        server.terminate()
        print("server: exit status", server.wait(30))
    for line in said:
        print("console:", line)
    print("passed" if not said else "failed")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
