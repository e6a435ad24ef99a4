import { jest } from "bun:test";

/** Fires each timer as soon as nothing else runs. Date advances by the complete delay of the timer. */
export function hurry(): Disposable {
  jest.useFakeTimers();
  let isOver = false;
  const goOn = (): void => {
    if (isOver) return;
    jest.advanceTimersToNextTimer();
    setImmediate(goOn);
  };
  setImmediate(goOn);
  return {
    [Symbol.dispose]: () => {
      isOver = true;
      jest.useRealTimers();
    },
  };
}
