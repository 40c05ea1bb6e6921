/** What there is to see: the first owner's page, the sign-in page, or the app of whoever is signed in. */
import { Center, Container, Loader } from "@mantine/core";
import { RouterProvider } from "@tanstack/react-router";
import { useState } from "react";
import { useSession } from "./api/session";
import { OwnerPage } from "./pages/OwnerPage";
import { SignInPage } from "./pages/SignInPage";
import { refusedSignIn } from "./pages/providers";
import { router } from "./router";
import { ErrorBoundary } from "./ui/ErrorBoundary";
import { ProblemAlert } from "./ui/ProblemAlert";

/** The secret of the first owner's link. It leaves the address at once, so that no history and no screenshot has it. */
function ownerLink(): string | null {
  const found = /^#owner=(.+)$/.exec(location.hash);
  if (!found?.[1]) return null;
  history.replaceState(null, "", "/");
  return decodeURIComponent(found[1]);
}
const opened = ownerLink();
const refused = refusedSignIn();

export function App() {
  const [link, setLink] = useState(opened);
  return (
    <ErrorBoundary>{link === null ? <Signed /> : <OwnerPage link={link} onDone={() => setLink(null)} />}</ErrorBoundary>
  );
}

function Signed() {
  const session = useSession();
  if (session.data) return <RouterProvider router={router} />;
  if (session.data === null) return <SignInPage refused={refused} />;
  if (session.error) {
    return (
      <Container size="xs" py="xl">
        <ProblemAlert error={session.error} onRetry={() => void session.refetch()} />
      </Container>
    );
  }
  return (
    <Center h="100vh">
      <Loader aria-label="Loading" />
    </Center>
  );
}
