/**
 * The certified provider library `oidc-provider`, as a company would run it: PKCE is required, refresh tokens are good for
 * one time, groups are told by the user information endpoint alone. People sign in by their name and nothing else.
 */
import { generateKeyPairSync } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import Provider, { type Context } from "oidc-provider";

const SCOPES = ["openid", "email", "profile", "groups"];
/** What a console of the test writes about it. */
export const SCOPES_LINE = `[${SCOPES.join(", ")}]`;

export interface RealProvider {
  url: string;
  /** Who there is, and what is said of them. */
  people: Map<string, Record<string, unknown>>;
  /** How often it was asked for tokens, by the kind of the grant. */
  asked: string[];
  /** Knows the client `us` with the secret `s3cret`, who comes back to this address. */
  knows: (redirect: string) => void;
  stop: () => Promise<void>;
}

export async function startRealProvider(): Promise<RealProvider> {
  let provider: Provider | undefined;
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((go) => server.listen(0, "127.0.0.1", go));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const people = new Map<string, Record<string, unknown>>();
  const asked: string[] = [];

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!provider) return void response.writeHead(503).end();
    if (!request.url?.startsWith("/interaction/")) return provider.callback()(request, response);
    if (request.method !== "POST") {
      const page = '<!doctype html><html lang="en"><title>Company</title><form method="post"><input name="login" aria-label="Who are you?"><button>Go on</button></form></html>';
      return void response.writeHead(200, { "content-type": "text/html" }).end(page);
    }
    let body = "";
    for await (const part of request) body += String(part);
    return provider.interactionFinished(request, response, { login: { accountId: new URLSearchParams(body).get("login") } });
  }

  function knows(redirect: string): void {
    const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
    const made = new Provider(url, {
      clients: [{ client_id: "us", client_secret: "s3cret", redirect_uris: [redirect], grant_types: ["authorization_code", "refresh_token"], response_types: ["code"] }],
      jwks: { keys: [{ ...key, kid: "of today", use: "sig", alg: "RS256" }] },
      cookies: { keys: ["of the test"] },
      scopes: SCOPES,
      claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "preferred_username"], groups: ["groups"] },
      pkce: { required: () => true },
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_: Context, { uid }: { uid: string }) => `/interaction/${uid}` },
      issueRefreshToken: (_: Context, client: { grantTypeAllowed: (kind: string) => boolean }) => {
        asked.push("authorization_code");
        return client.grantTypeAllowed("refresh_token");
      },
      rotateRefreshToken: () => {
        asked.push("refresh_token");
        return true;
      },
      findAccount: (_: Context, id: string) => {
        const said = people.get(id);
        return said && { accountId: id, claims: () => ({ sub: id, ...said }) };
      },
      // whoever runs it has agreed for its people
      loadExistingGrant: async ({ oidc }: Context) => {
        const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
        grant.addOIDCScope(SCOPES.join(" "));
        await grant.save();
        return grant;
      },
    });
    provider = made;
  }

  return { url, people, asked, knows, stop: async () => {
    server.closeAllConnections();
    await new Promise((go) => server.close(go));
  } };
}
