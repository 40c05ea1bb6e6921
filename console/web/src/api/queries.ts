/** How answers are kept: asked again when the network fails, never when the console said no. */
import { QueryClient } from "@tanstack/react-query";
import { ApiError, onSignedOut } from "./client";

export function makeQueries(): QueryClient {
  const queries = new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        retry: (failures, error) => failures < 3 && !(error instanceof ApiError && error.problem.status >= 400 && error.problem.status < 500),
      },
    },
  });
  // a session that ended elsewhere ends here: the sign-in page comes up where they were
  onSignedOut(() => {
    if (queries.getQueryData(["session"])) queries.setQueryData(["session"], null);
  });
  return queries;
}
