/** A sign-in provider of one's own: OpenID Connect as far as a console asks for it, with people who never type anything. */
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Provider {
  url: string;
  /** What it says of whoever comes next. */
  claims: Record<string, unknown>;
  /** How it sends them back: with a code, without one, or with the state of somebody else. */
  sends: "code" | "no code" | "foreign state";
  stop: () => Promise<void>;
}

/** Starts one that knows the client `us` with the secret `s3cret`. */
export async function startProvider(): Promise<Provider> {
  const key = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const begun = { nonce: "", challenge: "" };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((go) => server.listen(0, "127.0.0.1", go));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider: Provider = { url, claims: {}, sends: "code", stop: async () => {
    server.closeAllConnections();
    await new Promise((go) => server.close(go));
  } };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const at = new URL(request.url ?? "/", url);
    const json = (body: unknown, status = 200) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (at.pathname === "/.well-known/openid-configuration") {
      return void json({ issuer: url, authorization_endpoint: `${url}/authorize`, token_endpoint: `${url}/token`, jwks_uri: `${url}/keys` });
    }
    if (at.pathname === "/keys") return void json({ keys: [{ ...key.publicKey.export({ format: "jwk" }), kid: "1" }] });
    if (at.pathname === "/authorize") {
      begun.nonce = at.searchParams.get("nonce") ?? "";
      begun.challenge = at.searchParams.get("code_challenge") ?? "";
      const back = new URL(at.searchParams.get("redirect_uri") ?? "");
      const state = at.searchParams.get("state") ?? "";
      back.searchParams.set("state", provider.sends === "foreign state" ? `${state.slice(0, -8)}AAAAAAAA` : state);
      if (provider.sends !== "no code") back.searchParams.set("code", "good");
      return void response.writeHead(303, { location: back.href }).end();
    }
    if (at.pathname !== "/token") return void response.writeHead(404).end();
    let body = "";
    for await (const part of request) body += String(part);
    const form = new URLSearchParams(body);
    const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
    const ours = request.headers.authorization === `Basic ${Buffer.from("us:s3cret").toString("base64")}`;
    if (!ours || form.get("code") !== "good" || challenge !== begun.challenge) return void json({ error: "invalid_grant" }, 400);
    return void json({ access_token: "a", token_type: "Bearer", id_token: token() });
  }

  function token(): string {
    const now = Math.floor(Date.now() / 1000);
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const text = `${part({ alg: "ES256", kid: "1" })}.${part({ iss: url, aud: "us", iat: now, exp: now + 300, nonce: begun.nonce, ...provider.claims })}`;
    return `${text}.${sign("sha256", Buffer.from(text), { key: key.privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
  }
  return provider;
}
