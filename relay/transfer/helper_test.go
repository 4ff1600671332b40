package transfer

const helperEnv = "TRANSFER_TEST_HELPER"

func helper() int { return 0 }
