/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporary credentials of roles, for S3 (rules in role.c). All fetches share them.
 * Threads of fetches.
 */
#pragma once

#include "base/error.h"

struct role;
struct storage_job;

struct role *role_create(void);
void role_destroy(struct role *role);

/* If the job's place has a role: gives it credentials that are valid for a while. May ask a service
 * and wait for it. */
enum status role_renew(struct storage_job *job, struct error *error) WARN_UNUSED;
