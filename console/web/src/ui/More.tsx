/** The rest of a list that comes a page at a time. */
import { Button, Center } from "@mantine/core";

interface Props {
  query: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };
  label?: string;
}

export function More({ query, label = "Show more" }: Props) {
  if (!query.hasNextPage) return null;
  return (
    <Center>
      <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>{label}</Button>
    </Center>
  );
}
