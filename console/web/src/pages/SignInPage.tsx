/** Signing in. It comes up at whatever address was asked for, which is shown once somebody is signed in. */
import { Alert, Button, Divider, PasswordInput, Stack, Text, TextInput } from "@mantine/core";
import { IconBrandGithub, IconLogin2 } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError, api, take, type Schemas } from "../api/client";
import { useAbout, useSignIn } from "../api/session";
import { Front } from "../ui/Front";
import { Loaded } from "../ui/Loaded";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { Words } from "../ui/Words";
import { providerPlace } from "./providers";

/** Refusals that are answers to what was typed, and no failures. */
const ANSWERS = ["wrong_credentials", "forbidden"];

/** `refused`: why somebody came back from a provider and is not signed in. */
export function SignInPage({ refused }: { refused: string | null }) {
  const about = useAbout();
  return (
    <Front title="Sign in">
      {refused === null ? null : <Alert color="red" role="alert">{refused}</Alert>}
      <Loaded query={about}>
        {(data) => (
          <>
            {data.providers.length > 0 ? <Providers providers={data.providers} /> : null}
            {data.providers.length > 0 && data.email_password ? <Divider label="or with email and password" /> : null}
            {data.email_password ? <PasswordForm focus={data.providers.length === 0} /> : null}
            {data.providers.length === 0 && !data.email_password
              ? <Text>Email and password are switched off here (<code>auth.email_password</code>), and no other way in is set.</Text>
              : null}
          </>
        )}
      </Loaded>
    </Front>
  );
}

/** One button for each provider; the browser leaves for it, and comes back signed in or with a word that says why not. */
function Providers({ providers }: { providers: Schemas["ProviderView"][] }) {
  const leave = useMutation({
    mutationFn: (provider: string) => take(api.POST("/api/v1/providers/{provider}/sign-in", { params: { path: { provider } } })),
    onSuccess: ({ location: place }) => location.assign(providerPlace(place)),
  });
  return (
    <Stack>
      {providers.map((one) => (
        <Button key={one.id} className="provider" variant="default" fullWidth leftSection={one.id === "github" ? <IconBrandGithub size={18} aria-hidden /> : <IconLogin2 size={18} aria-hidden />}
          loading={(leave.isPending || leave.isSuccess) && leave.variables === one.id} disabled={leave.isPending || leave.isSuccess} onClick={() => leave.mutate(one.id)}>
          <span>Sign in with <Words>{one.name}</Words></span>
        </Button>
      ))}
      <ProblemAlert error={leave.error} />
    </Stack>
  );
}

function PasswordForm({ focus }: { focus: boolean }) {
  const signIn = useSignIn();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    signIn.mutate({ email, password });
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        <TextInput label="Email" name="email" type="email" autoComplete="username" required autoFocus={focus}
          value={email} onChange={(event) => setEmail(event.currentTarget.value)} />
        <PasswordInput label="Password" name="password" autoComplete="current-password" required
          value={password} onChange={(event) => setPassword(event.currentTarget.value)} />
        <Refusal error={signIn.error} />
        <Button type="submit" loading={signIn.isPending} fullWidth>Sign in</Button>
      </Stack>
    </form>
  );
}

function Refusal({ error }: { error: unknown }) {
  if (error instanceof ApiError && ANSWERS.includes(error.problem.code)) {
    return <Alert color="red" role="alert">{sentence(error.problem.detail)}</Alert>;
  }
  return <ProblemAlert error={error} />;
}
