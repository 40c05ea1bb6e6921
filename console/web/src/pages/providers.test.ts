/** What an address may make the sign-in page say, and where it may send a browser. */
import { expect, test } from "vitest";
import { providerPlace, refusal } from "./providers";

test("a word in the address is told, and no text of whoever made the link", () => {
  expect(refusal("#sign-in=not_allowed")).toBe("Your account is not allowed to use Sallyport");
  for (const word of ["expired", "failed", "address_taken", "no_owner"]) expect(refusal(`#sign-in=${word}`), word).not.toBeNull();
  for (const other of ["", "#sign-in=", "#sign-in=call%20555", "#sign-in=constructor", "#sign-in=expired!", "#owner=expired"]) expect(refusal(other), other).toBeNull();
});

test("browsers are sent to pages only", () => {
  expect(providerPlace("https://id.example.com/authorize?state=x")).toBe("https://id.example.com/authorize?state=x");
  for (const place of ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "no address"]) expect(() => providerPlace(place), place).toThrow();
});
