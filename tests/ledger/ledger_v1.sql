BEGIN TRANSACTION;
CREATE TABLE accounts (
	id INTEGER NOT NULL, 
	dataset TEXT NOT NULL, 
	epsilon FLOAT, 
	delta FLOAT, 
	neighbours TEXT NOT NULL, 
	unit_name TEXT NOT NULL, 
	unit_max_examples INTEGER NOT NULL, 
	created TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT budget_whole_or_absent CHECK ((epsilon IS NULL) = (delta IS NULL)), 
	UNIQUE (dataset)
);
INSERT INTO "accounts" VALUES(1,'digits',3.0,1.0e-05,'add-remove','example',1,'2025-01-01T00:00:00+00:00');
INSERT INTO "accounts" VALUES(2,'people',NULL,NULL,'replace-one','person',3,'2025-01-01T00:00:00+00:00');
CREATE TABLE records (
	id INTEGER NOT NULL, 
	reservation_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	steps INTEGER NOT NULL, 
	event TEXT, 
	created TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT known_kind CHECK (kind IN ('drawn', 'committed', 'released')), 
	CONSTRAINT commits_carry_their_event CHECK ((kind = 'committed') = (event IS NOT NULL)), 
	FOREIGN KEY(reservation_id) REFERENCES reservations (id)
);
INSERT INTO "records" VALUES(1,1,'drawn',5,NULL,'2025-01-01T00:00:00+00:00');
INSERT INTO "records" VALUES(2,1,'committed',4,'{"event": {"class": "SelfComposedDpEvent", "count": 4, "event": {"class": "GaussianDpEvent", "noise_multiplier": 10.0}}, "schema": 1}','2025-01-01T00:00:00+00:00');
INSERT INTO "records" VALUES(3,3,'released',0,NULL,'2025-01-01T00:00:00+00:00');
CREATE TABLE reservations (
	id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	run TEXT NOT NULL, 
	note TEXT NOT NULL, 
	steps INTEGER NOT NULL, 
	event TEXT NOT NULL, 
	created TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(account_id) REFERENCES accounts (id)
);
INSERT INTO "reservations" VALUES(1,1,'early','',10,'{"event": {"class": "SelfComposedDpEvent", "count": 10, "event": {"class": "GaussianDpEvent", "noise_multiplier": 10.0}}, "schema": 1}','2025-01-01T00:00:00+00:00');
INSERT INTO "reservations" VALUES(2,2,'other','',7,'{"event": {"class": "SelfComposedDpEvent", "count": 7, "event": {"class": "GaussianDpEvent", "noise_multiplier": 10.0}}, "schema": 1}','2025-01-01T00:00:00+00:00');
INSERT INTO "reservations" VALUES(3,1,'nothing','',20,'{"event": {"class": "SelfComposedDpEvent", "count": 20, "event": {"class": "GaussianDpEvent", "noise_multiplier": 10.0}}, "schema": 1}','2025-01-01T00:00:00+00:00');
INSERT INTO "reservations" VALUES(4,1,'open','',30,'{"event": {"class": "SelfComposedDpEvent", "count": 30, "event": {"class": "GaussianDpEvent", "noise_multiplier": 10.0}}, "schema": 1}','2025-01-01T00:00:00+00:00');
CREATE TABLE tacit_ledger (
	schema_version INTEGER NOT NULL, 
	created TEXT NOT NULL, 
	PRIMARY KEY (schema_version)
);
INSERT INTO "tacit_ledger" VALUES(1,'2025-01-01T00:00:00+00:00');
CREATE INDEX ix_reservations_account_id ON reservations (account_id);
CREATE UNIQUE INDEX closed_once ON records (reservation_id) WHERE kind IN ('committed', 'released');
CREATE INDEX ix_records_reservation_id ON records (reservation_id);
COMMIT;
