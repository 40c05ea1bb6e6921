"""fetch.py KIND URL: one request with urllib, requests or asyncio; exit 0 on 200."""

import asyncio
import ssl
import sys
import urllib.parse
import urllib.request

LIMIT = 15


def with_urllib(url):
    return urllib.request.urlopen(url, timeout=LIMIT).read().decode()


def with_requests(url):
    import requests

    answer = requests.get(url, timeout=LIMIT)
    answer.raise_for_status()
    return answer.text


async def over_streams(url):
    parts = urllib.parse.urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=secure)
    writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.hostname}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    if " 200 " not in answer.splitlines()[0]:
        raise SystemExit(answer)
    return answer


def with_asyncio(url):
    return asyncio.run(asyncio.wait_for(over_streams(url), LIMIT))


kinds = {"urllib": with_urllib, "requests": with_requests, "asyncio": with_asyncio}
print(kinds[sys.argv[1]](sys.argv[2]))
