/** The product's sign and name. */
import { Group, Text } from "@mantine/core";

export function Mark() {
  return (
    <Group gap={8} wrap="nowrap">
      <img src="/icon.svg" alt="" width={26} height={26} />
      <Text fw={700} size="lg" span>Sallyport</Text>
    </Group>
  );
}
