export async function statusAndCode(response: Response): Promise<[status: number, code?: string]> {
  if (response.headers.get("content-type") !== "application/problem+json") return [response.status];
  const { code }: { code: string } = JSON.parse(await response.text());
  return [response.status, code];
}
