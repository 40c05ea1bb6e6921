/** The nonce of this page's style sheets, which the console wrote into the page and its policy. */
export const styleNonce = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]')?.content ?? "";
