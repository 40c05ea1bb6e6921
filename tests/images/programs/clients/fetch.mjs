// node fetch.mjs URL: node's built-in fetch; exit 0 on 200.
try {
  const answer = await fetch(process.argv[2]);
  console.log(answer.status, await answer.text());
  process.exitCode = answer.status === 200 ? 0 : 4;
} catch (error) {
  console.error(error, error.cause);
  process.exitCode = 1;
}
