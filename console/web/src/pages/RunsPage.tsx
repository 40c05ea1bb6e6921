/** All runs of the workspace. */
import { Select } from "@mantine/core";
import { useState } from "react";
import { RunList } from "../runs/RunList";
import { STATES } from "../runs/StateBadge";
import { Page } from "../ui/Page";

export function RunsPage() {
  const [state, setState] = useState("");
  return (
    <Page title="Runs" about="What ran, newest first.">
      <Select label="State" allowDeselect={false} value={state} onChange={(value) => setState(value ?? "")} maw={240} data={[{ value: "", label: "any" }, ...STATES]} />
      <RunList filter={state === "" ? {} : { state }} />
    </Page>
  );
}
