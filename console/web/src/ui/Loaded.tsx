/** What a query brought: its content, its problem with a way to try again, or the shape of what is coming. */
import { Skeleton, Stack } from "@mantine/core";
import type { UseQueryResult, UseInfiniteQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ProblemAlert } from "./ProblemAlert";

type Query<T> = Pick<UseQueryResult<T> | UseInfiniteQueryResult<T>, "data" | "error" | "refetch">;

export function Loaded<T>({ query, children }: { query: Query<T>; children: (data: NonNullable<T>) => ReactNode }) {
  const { data, error } = query;
  return (
    <>
      {error ? <ProblemAlert error={error} onRetry={() => void query.refetch()} /> : null}
      {data !== undefined && data !== null ? children(data) : null}
      {data === undefined && !error ? (
        <Stack gap="xs" role="status" aria-label="Loading">
          {[0, 1, 2].map((line) => <Skeleton key={line} height={28} />)}
        </Stack>
      ) : null}
    </>
  );
}
