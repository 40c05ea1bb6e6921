// Before the first paint: the scheme that was chosen here, else the system's, so that nothing flashes.
(function () {
  var kept = null;
  try { kept = localStorage.getItem("mantine-color-scheme-value"); } catch (e) { /* no storage: the system's */ }
  var dark = kept === "dark" || (kept !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
