/** Returns the error that a promise rejects with. Unlike `expect(promise).rejects`, it does not block Bun's event loop. */
export async function errorOf(promise: unknown): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error("it did not reject");
}
