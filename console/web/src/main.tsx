/** Begins the app: style sheets in files, the nonce for those that libraries make, the query cache, the theme. */
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app.css";
import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { makeQueries } from "./api/queries";
import { styleNonce } from "./ui/nonce";
import { theme } from "./ui/theme";

setNonce(styleNonce);
const queries = makeQueries();
const root = document.getElementById("root");
if (!root) throw new Error("the page has no place for the app");
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => styleNonce}>
      <QueryClientProvider client={queries}>
        <Notifications position="bottom-right" />
        <App />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
