/** Signing in. It comes up at whatever address was asked for, which is shown once somebody is signed in. */
import { Alert, Button, PasswordInput, Stack, Text, TextInput } from "@mantine/core";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "../api/client";
import { useAbout, useSignIn } from "../api/session";
import { Front } from "../ui/Front";
import { Loaded } from "../ui/Loaded";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";

/** Refusals that are answers to what was typed, and no failures. */
const ANSWERS = ["wrong_credentials", "forbidden"];

export function SignInPage() {
  const about = useAbout();
  return (
    <Front title="Sign in">
      <Loaded query={about}>
        {(data) => data.email_password
          ? <PasswordForm />
          : <Text>Email and password are switched off here (<code>auth.email_password</code>), and no other way in is set.</Text>}
      </Loaded>
    </Front>
  );
}

function PasswordForm() {
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
        <TextInput label="Email" name="email" type="email" autoComplete="username" required autoFocus
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
