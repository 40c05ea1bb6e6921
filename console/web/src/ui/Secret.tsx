/** Something that is shown this once, to be copied. */
import { ActionIcon, Code, CopyButton, Group, Tooltip } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";

export function Secret({ text, label }: { text: string; label: string }) {
  return (
    <Group gap="xs" wrap="nowrap" align="center">
      <Code block className="wrap" aria-label={label} flex={1}>{text}</Code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? "Copied" : "Copy"}>
            <ActionIcon variant="default" size="lg" onClick={copy} aria-label={copied ? "Copied" : `Copy ${label}`}>
              {copied ? <IconCheck size={18} /> : <IconCopy size={18} />}
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </Group>
  );
}
