// Gets the program for this platform from the release, checked by its SHA-256. npm runs this
// file after an installation; the launcher calls it where npm ran no scripts. It tries once:
// whoever can't reach the release gets the reason within 20 seconds, and what to do instead.
"use strict";
const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const https = require("node:https");
const os = require("node:os");
const path = require("node:path");
const tls = require("node:tls");
const zlib = require("node:zlib");

const RELEASE = "@RELEASES@/@VERSION@";
const SHA256 = "@SUMS@"; // of the file for each platform
const SILENCE = 15_000; // milliseconds without an answer, or without another piece of it
const LONGEST = 300_000; // milliseconds of a download
const LARGEST = 64 << 20; // bytes of a download
const REDIRECTS = 5;

const platform = process.platform === "darwin" ? "darwin" : `${process.platform}-${process.arch}`;
const asset = `@PACKAGE@-${platform}-@NUMBER@.tgz`;
const command = process.platform === "win32" ? "colab-relay.exe" : "colab-relay";

// folders are where the program may be: in this package, or, if its folder belongs to another
// user, in this user's cache.
function folders() {
  const base = process.platform === "win32" ? process.env.LOCALAPPDATA : process.platform === "darwin" ? path.join(os.homedir(), "Library", "Caches") : process.env.XDG_CACHE_HOME;
  return [path.join(__dirname, platform), path.join(base || path.join(os.homedir(), ".cache"), "colab-relay", "npm-@NUMBER@", platform)];
}

// program returns the path of the program, which it downloads if it is not there.
async function program() {
  const found = folders().map((folder) => path.join(folder, command)).find((file) => fs.existsSync(file));
  if (found) return found;
  if (!SHA256[platform]) throw new Error(`the release has no program for ${process.platform} on ${process.arch}`);
  const url = `${RELEASE}/${asset}`;
  console.error(`colab-relay: downloading the program for ${platform}: ${url}`);
  let bytes;
  try {
    bytes = unpack(await download(url));
  } catch (error) {
    throw new Error(`download ${url}: ${error.message || error.code}
Next step: check the network (HTTPS_PROXY names a proxy) and run the same command again. Without a network, get ${asset}, which contains the program, from the release on another computer and run: npm install --global ./${asset}`);
  }
  return keep(bytes);
}

// download returns the file at a URL, whose SHA-256 must be the release's.
async function download(url) {
  const stop = new AbortController();
  const limit = (time, why) => setTimeout(() => stop.abort(new Error(why)), time);
  const whole = limit(LONGEST, `it took longer than ${LONGEST / 1000} s`);
  let silence = limit(SILENCE, `no answer within ${SILENCE / 1000} s`);
  try {
    const answer = await follow(new URL(url), stop.signal);
    const pieces = [];
    let size = 0;
    for await (const piece of answer) {
      clearTimeout(silence);
      silence = limit(SILENCE, `the server sent nothing for ${SILENCE / 1000} s`);
      pieces.push(piece);
      size += piece.length;
      if (size > LARGEST) throw new Error(`it is larger than ${LARGEST >> 20} MiB`);
    }
    const file = Buffer.concat(pieces);
    const sum = crypto.createHash("sha256").update(file).digest("hex");
    if (sum !== SHA256[platform]) throw new Error(`it is not the file of this release: its SHA-256 is ${sum}, not ${SHA256[platform]}`);
    return file;
  } catch (error) {
    throw stop.signal.aborted ? stop.signal.reason : error;
  } finally {
    clearTimeout(whole);
    clearTimeout(silence);
    stop.abort(); // ends what is left of a connection
  }
}

// follow returns the answer to a request, after redirects. TLS is never given up.
async function follow(url, signal) {
  for (let n = 0; n <= REDIRECTS; n++) {
    const answer = await request(url, signal);
    if (answer.statusCode === 200) return answer;
    answer.resume();
    if (answer.statusCode < 300 || answer.statusCode > 399 || !answer.headers.location) throw new Error(`the server answered ${answer.statusCode} ${answer.statusMessage}`);
    const next = new URL(answer.headers.location, url);
    if (next.protocol !== "https:" && next.protocol !== url.protocol) throw new Error(`the server redirects to ${next.protocol}//`);
    url = next;
  }
  throw new Error(`the server redirects more than ${REDIRECTS} times`);
}

async function request(url, signal) {
  let options = { signal, agent: false };
  const proxy = url.protocol === "https:" && proxyFor(url.hostname);
  if (proxy) {
    const socket = await throughProxy(new URL(proxy), url, signal);
    options = { signal, createConnection: () => tls.connect({ socket, servername: url.hostname }) };
  }
  return new Promise((resolve, reject) => {
    (url.protocol === "https:" ? https : http).get(url, options, resolve).on("error", reject);
  });
}

// proxyFor returns the URL of the proxy that the environment or npm names for a host, or "".
function proxyFor(host) {
  const env = (...names) => names.map((name) => process.env[name]).find((value) => value) || "";
  for (const word of env("NO_PROXY", "no_proxy", "npm_config_noproxy").split(/[\s,]+/)) {
    const suffix = word.replace(/^\*?\./, "");
    if (word === "*" || (suffix && (host === suffix || host.endsWith("." + suffix)))) return "";
  }
  return env("npm_config_https_proxy", "HTTPS_PROXY", "https_proxy", "npm_config_proxy", "HTTP_PROXY", "http_proxy");
}

// throughProxy returns a connection to a URL's host that a proxy has made (CONNECT).
function throughProxy(proxy, url, signal) {
  const headers = {};
  if (proxy.username) headers["Proxy-Authorization"] = "Basic " + Buffer.from(decodeURIComponent(`${proxy.username}:${proxy.password}`)).toString("base64");
  return new Promise((resolve, reject) => {
    (proxy.protocol === "https:" ? https : http)
      .request(proxy, { method: "CONNECT", path: `${url.hostname}:${url.port || 443}`, headers, signal, agent: false })
      .on("connect", (answer, socket) => (answer.statusCode === 200 ? resolve(socket) : reject(new Error(`the proxy ${proxy.host} answered ${answer.statusCode}`))))
      .on("error", reject)
      .end();
  });
}

// unpack returns the program in a package of npm, a compressed tar archive.
function unpack(file) {
  const archive = zlib.gunzipSync(file, { maxOutputLength: 4 * LARGEST });
  for (let at = 0; at + 512 <= archive.length; ) {
    const field = (from, length) => archive.toString("latin1", at + from, at + from + length).replace(/\0.*$/s, "");
    const size = parseInt(field(124, 12), 8) || 0;
    if (field(0, 100) === `package/bin/${command}`) return archive.subarray(at + 512, at + 512 + size);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  throw new Error("it contains no program");
}

// keep writes the program to the first folder that lets it, by a rename, and returns its path.
function keep(bytes) {
  let problem;
  for (const folder of folders()) {
    const file = path.join(folder, command);
    const part = `${file}.${process.pid}.part`;
    try {
      fs.mkdirSync(folder, { recursive: true });
      fs.writeFileSync(part, bytes, { mode: 0o755 });
      fs.renameSync(part, file);
      return file;
    } catch (error) {
      if (fs.existsSync(part)) fs.rmSync(part);
      if (fs.existsSync(file)) return file; // another process wrote it, and it may be running
      problem = error;
    }
  }
  throw new Error(`keep the program: ${problem.message}
Next step: make this folder writable, or its disk less full, and run the same command again.`);
}

module.exports = { program };

if (require.main === module) {
  program().catch((error) => {
    console.error(`colab-relay: ${error.message}`);
    process.exit(1);
  });
}
