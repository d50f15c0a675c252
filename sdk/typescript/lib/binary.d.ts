/** The version of this package and of its program. */
export const version: string;
/** The path of the program: FENCEPOST_BIN, the one in the package for this platform, or the one on PATH. */
export function binaryPath(): string;
/** As `binaryPath`, without PATH. */
export function ownPath(): string;
