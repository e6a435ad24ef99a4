import type { Command } from "commander";
import { addDoctorCommand, addHealthCommand } from "./commands/doctor.ts";
import { addKeysCommand } from "./commands/keys.ts";
import { addLoginCommands } from "./commands/login.ts";
import { addStoreCommands } from "./commands/stores.ts";
import { addTodoCommands } from "./commands/todos.ts";
import { addTransferCommands } from "./commands/transfer.ts";
import { addUsersCommand } from "./commands/users.ts";
import type { CommandProcess } from "./terminal/output.ts";

/** Adds all commands besides `todo serve`. */
export function addOtherCommands(program: Command, process: CommandProcess): void {
  addHealthCommand(program, process);
  addDoctorCommand(program, process);
  program.commandsGroup("To-dos of a running service:");
  addTodoCommands(program, process);
  addLoginCommands(program, process);
  program.commandsGroup("API keys and users:");
  addKeysCommand(program, process);
  addUsersCommand(program, process);
  program.commandsGroup("Stores:");
  addStoreCommands(program, process);
  addTransferCommands(program, process);
  program.commandsGroup("Help:");
}
