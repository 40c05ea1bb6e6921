/** Hands a text to the browser as a file. */
export function saveAs(name: string, text: string | Blob): void {
  const blob = typeof text === "string" ? new Blob([text], { type: "application/octet-stream" }) : text;
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
