/** The first start: whoever holds the one-time link says who they are and becomes the owner. */
import { Anchor, Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useState, type SubmitEvent } from "react";
import { wrongField } from "../api/client";
import { useClaim } from "../api/session";
import { Front } from "../ui/Front";
import { ProblemAlert } from "../ui/ProblemAlert";

export function OwnerPage({ link, onDone }: { link: string; onDone: () => void }) {
  const claim = useClaim();
  const [values, setValues] = useState({ email: "", name: "", password: "" });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    claim.mutate({ link, ...values }, { onSuccess: onDone });
  };
  const field = (name: keyof typeof values) => ({
    name,
    value: values[name],
    required: true,
    error: wrongField(claim.error, name),
    onChange: (event: { currentTarget: { value: string } }) => {
      const { value } = event.currentTarget;
      setValues((before) => ({ ...before, [name]: value }));
    },
  });
  return (
    <Front title="Become the first owner" about="This instance has no owner yet. The link that you opened works once; you can add others afterwards.">
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Email" type="email" autoComplete="username" autoFocus {...field("email")} />
          <TextInput label="Your name" description="Others see it" autoComplete="name" {...field("name")} />
          <PasswordInput label="Password" description="At least 12 characters" autoComplete="new-password" {...field("password")} />
          <ProblemAlert error={claim.error} shown={["email", "name", "password"]} />
          <Button type="submit" loading={claim.isPending} fullWidth>Become the owner</Button>
          <Anchor component="button" type="button" size="sm" onClick={onDone}>I have an account: sign in</Anchor>
        </Stack>
      </form>
    </Front>
  );
}
