// Package transfer moves files and folders between laptop and VM: resumable,
// checked, never over an existing file unless asked.
package transfer
