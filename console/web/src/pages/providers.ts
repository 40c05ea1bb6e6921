/** Sign-in by a provider, as the page sees it: where a browser may be sent, and what a word in the address says when it is back. */

/** By the word after `#sign-in=`. Whatever else stands there is the text of whoever made the link, and is not shown. */
const REFUSED = new Map([
  ["not_allowed", "Your account is not allowed to use Sallyport"],
  ["expired", "Signing in took too long, or began in another browser. Try again"],
  ["failed", "The provider did not say who you are. Try again; the console's log says why"],
  ["address_taken", "An account here has your email address already. Sign in the way you did before"],
  ["no_owner", "This instance has no owner yet. The first owner comes by the link that the console wrote into its log"],
]);

/** What to tell somebody whose sign-in ended in this fragment. */
export function refusal(fragment: string): string | null {
  const word = /^#sign-in=(\w+)$/.exec(fragment)?.[1];
  return word === undefined ? null : (REFUSED.get(word) ?? null);
}

/** Why the browser is back and nobody is signed in. It leaves the address, so that it is not told again. */
export function refusedSignIn(): string | null {
  const { hash } = location;
  if (!hash.startsWith("#sign-in=")) return null;
  history.replaceState(null, "", "/");
  return refusal(hash);
}

/** An address that is a page of the web; a script or a file is none. */
export function providerPlace(place: string): string {
  const { protocol, href } = new URL(place);
  if (protocol !== "https:" && protocol !== "http:") throw new Error("the provider's address is no page");
  return href;
}
