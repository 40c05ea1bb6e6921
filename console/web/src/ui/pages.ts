/** Lists that come a page at a time, by the API's cursor. */
import { useInfiniteQuery } from "@tanstack/react-query";

interface Page<Row> {
  items: Row[];
  next?: string | null;
}

/** How many rows are asked for at once. */
export const PAGE = 100;

/** All rows that were asked for so far. */
export function usePages<Row>(key: unknown[], ask: (cursor: string | undefined) => Promise<Page<Row>>, options: { refetchInterval?: number } = {}) {
  return useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam }) => ask(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    select: (data) => data.pages.flatMap((page) => page.items),
    // what happened while the list was not shown was told to nobody
    refetchOnMount: "always",
    ...options,
  });
}
